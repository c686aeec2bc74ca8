"""Documents that people read: sections of tables, figures and sentences as data, rendered to four forms.

`document`: the records. `numbers`: how a number is written, with its unit. `terminal`, `html_page`, `markdown` and
`json_document` render a document; `svg` draws its figures. What a document says is written in the package of its
subject; how it looks is written here and nowhere else.
"""
