# Install and export: find_package(strata) defines strata::runtime ... and strata::strata, which links them
# all.
get_property(strata_modules GLOBAL PROPERTY STRATA_MODULES)
add_library(strata_all INTERFACE)
add_library(strata::strata ALIAS strata_all)
target_link_libraries(strata_all INTERFACE ${strata_modules})

if(NOT PROJECT_IS_TOP_LEVEL)
  return()  # a project that contains strata decides itself what to install
endif()

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(strata_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/strata")

set_target_properties(strata_all PROPERTIES EXPORT_NAME strata)
set_target_properties(strata_alloc_hook PROPERTIES EXPORT_NAME alloc_hook)
install(TARGETS ${strata_modules} strata_all EXPORT strataTargets)
# The C library is a package of its own: whoever links it needs nothing else.
install(TARGETS strata_shared EXPORT strataCTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT strataCTargets NAMESPACE strata:: DESTINATION "${strata_package_dir}")
file(RELATIVE_PATH strata_prefix_of_pc "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /)
configure_file(cmake/strata.pc.in strata.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/strata.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
# Objects instead of an archive: whether operator new is replaced must not depend on the linker's search of
# archives.
install(TARGETS strata_alloc_hook EXPORT strataTargets OBJECTS DESTINATION "${CMAKE_INSTALL_LIBDIR}/strata")
install(EXPORT strataTargets NAMESPACE strata:: DESTINATION "${strata_package_dir}")

# The headers of the API and what they include, which is found out when they are installed: it is what they include then.
get_property(strata_api GLOBAL PROPERTY STRATA_API)
set(strata_include_dirs "")
foreach(module IN LISTS strata_modules)
  get_target_property(module_dir ${module} SOURCE_DIR)
  list(APPEND strata_include_dirs "${module_dir}/include")
endforeach()
install(CODE "set(api \"${strata_api}\")
  set(include_dirs \"${strata_include_dirs}\")
  set(destination \"${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT cmake/install_api.cmake)
install(DIRECTORY bindings/libtorch/include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

configure_package_config_file(cmake/strataConfig.cmake.in "${PROJECT_BINARY_DIR}/strataConfig.cmake"
  INSTALL_DESTINATION "${strata_package_dir}" NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may be incompatible.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/strataConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/strataConfig.cmake" "${PROJECT_BINARY_DIR}/strataConfigVersion.cmake"
  DESTINATION "${strata_package_dir}")

# The presets' paths to their texts are relative to this folder (train_config.cpp).
install(DIRECTORY examples/data DESTINATION "${CMAKE_INSTALL_DATADIR}/strata/examples")
install(FILES LICENSE NOTICE README.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
include(StrataPackage)
