# Install and export: find_package(strata) gives strata::runtime ... and strata::strata, which joins them.
