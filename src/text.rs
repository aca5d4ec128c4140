//! Features of text while it streams.
