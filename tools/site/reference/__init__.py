"""Pages made from code and results when the site is built."""

from tools.site.reference import benchmarks, command_line, contract, errors, http_api, metrics, python_api

PAGES = {
    "reference/command-line.md": command_line.page,
    "reference/http-api.md": http_api.page,
    "reference/errors.md": errors.page,
    "reference/message-options.md": contract.options,
    "reference/queue-settings.md": contract.settings,
    "reference/outcomes.md": contract.outcomes,
    "reference/keys.md": contract.keys,
    "reference/metrics.md": metrics.page,
    "benchmarks/results.md": benchmarks.page,
    **{f"reference/python/{name}.md": page for name, page in python_api.pages().items()},
}  #: by the path of the page: the function that returns its Markdown
