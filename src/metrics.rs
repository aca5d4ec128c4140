//! Every metric's name, unit, labels and buckets.
