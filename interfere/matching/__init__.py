"""Which jobs start where at the least cost: a problem of columns, solved level by level with proven bounds."""
