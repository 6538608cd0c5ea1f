"""One module a source: package bytes in, `SourceItem`s out."""
