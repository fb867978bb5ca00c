"""The commands of the command line, a module for what belongs together; `add_to` gives them to the parser."""
