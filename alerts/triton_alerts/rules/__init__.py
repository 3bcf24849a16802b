"""The rule files of the alert catalogue, from its tables: rules, links to panels and runbooks, and their lint."""
