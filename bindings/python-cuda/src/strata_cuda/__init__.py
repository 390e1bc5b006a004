"""strata's library with CUDA. There is nothing to import: `strata` loads it."""
