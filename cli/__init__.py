"""The `stsr` command: one thin command per room."""
