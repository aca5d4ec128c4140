//! Numeric kernels on slices and ndarray.
