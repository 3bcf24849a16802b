"""One module X_page a page, with its routes and the values of its template, and the charts of an objective."""
