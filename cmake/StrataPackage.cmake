# `cpack` in the build folder writes strata_VERSION_ARCHITECTURE.deb: command, libraries, headers, manual pages,
# completions, texts of the presets. scripts/package.sh builds it.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME strata)
set(CPACK_PACKAGE_VENDOR "the strata developers")
set(CPACK_PACKAGE_CONTACT "the strata developers <strata@invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX "${CMAKE_INSTALL_PREFIX}")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The C library needs nothing else to build against; the C++ libraries need the headers of what they use.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "bash-completion, g++, cmake, pkg-config, libfmt-dev, libspdlog-dev, libexpected-dev, \
libhwloc-dev, libisal-dev, liburing-dev, libxxhash-dev, libutf8proc-dev, zlib1g-dev, libyaml-dev, libdnnl-dev, libcpp-httplib-dev, nlohmann-json3-dev")
include(CPack)
