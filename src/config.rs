//! Every module's parameters side by side: strict TOML, errors with the field's path, reload.
