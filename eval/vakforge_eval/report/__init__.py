"""The report: one document model, and writers that only read it.

`document` builds the document (what report.json holds), `page` lays it out once as sections of
plain text cells, and the markdown, HTML and terminal writers render that page, so that the same
number is printed with the same words everywhere.
"""
