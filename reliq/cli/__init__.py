"""The commands of the command line, grouped by module; each module's `add_to` adds its commands to the parser."""
