//! Quality-passed answers, exact key, bounded by entries and bytes, least recently used out first.
