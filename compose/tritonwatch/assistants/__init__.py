"""Answers for assistants (Model Context Protocol): the JSON of verbs, with its age and what limits it."""
