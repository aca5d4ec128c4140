//! Bytes ⇄ what an answer says.
