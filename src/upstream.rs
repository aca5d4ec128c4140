//! The reqwest client: pools, deadlines; each failure tagged by whose fault.
