# A module is a folder with include/ (for other modules), src/ (private) and one target. It only sees the headers of
# modules it links, so an include that violates the dependencies does not compile.

# Compile options of all our targets. FMA contraction is off everywhere: bits must not depend on whether the
# compiler fuses a multiplication and an addition (contract C1).
add_library(strata_flags INTERFACE)
target_compile_features(strata_flags INTERFACE cxx_std_20)
target_compile_options(strata_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -ffp-contract=off
  -fstack-protector-strong -fvisibility-inlines-hidden>)
if(STRATA_WERROR)
  target_compile_options(strata_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(strata_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>)
endif()
if(STRATA_DCHECKS)
  target_compile_definitions(strata_flags INTERFACE STRATA_DCHECKS=1)
endif()
if(STRATA_SANITIZE)
  # GCC 12 warns of uninitialized values in its own <regex> and <functional> if there is a sanitizer.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(strata_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  endif()
  target_compile_options(strata_flags INTERFACE -fsanitize=${STRATA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(strata_flags INTERFACE -fsanitize=${STRATA_SANITIZE})
endif()
if(STRATA_FUZZ)
  target_compile_options(strata_flags INTERFACE -fsanitize=fuzzer-no-link)  # coverage that guides libFuzzer
  target_link_options(strata_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(STRATA_COVERAGE)
  target_compile_options(strata_flags INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(strata_flags INTERFACE --coverage)
endif()

set_property(GLOBAL PROPERTY STRATA_MODULES "")
set_property(GLOBAL PROPERTY STRATA_API "")

# strata_add_module(NAME [SOURCES ...] [DEPENDS strata::x ...] [PRIVATE_LIBS ...] [PUBLIC_LIBS ...] [API ...] [RUNS_ONCE])
# SOURCES: all .cpp files below src/, unless they are listed, as they are where they depend on what was found.
# API: the headers that programs outside of this tree include, as they write them. These are installed, with what they
# include, and no others (docs/architecture.md lists them).
# RUNS_ONCE: what the module does is done once per run or per command, not per step, so that a third of its compile time
# is worth more than its optimization.
function(strata_add_module name)
  cmake_parse_arguments(arg "RUNS_ONCE" "" "SOURCES;DEPENDS;PRIVATE_LIBS;PUBLIC_LIBS;API" ${ARGN})
  if(NOT arg_SOURCES)
    file(GLOB_RECURSE arg_SOURCES CONFIGURE_DEPENDS src/*.cpp)
  endif()
  add_library(strata_${name} STATIC ${arg_SOURCES})
  add_library(strata::${name} ALIAS strata_${name})
  set_target_properties(strata_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_include_directories(strata_${name}
    PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
    PRIVATE src)
  target_link_libraries(strata_${name} PUBLIC ${arg_DEPENDS} ${arg_PUBLIC_LIBS}
    PRIVATE $<BUILD_INTERFACE:strata_flags> ${arg_PRIVATE_LIBS})
  target_compile_features(strata_${name} PUBLIC cxx_std_20)
  if(arg_RUNS_ONCE)
    target_compile_options(strata_${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  endif()
  set_property(GLOBAL APPEND PROPERTY STRATA_MODULES strata_${name})
  set_property(GLOBAL APPEND PROPERTY STRATA_API ${arg_API})
endfunction()

# strata_add_test(NAME [SOURCES ...] DEPENDS ... [LABELS ...]): a GoogleTest program, of all .cpp files of its folder
# unless they are listed.
function(strata_add_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LABELS;DEFINES" ${ARGN})
  if(NOT arg_SOURCES)
    file(GLOB_RECURSE arg_SOURCES CONFIGURE_DEPENDS *.cpp)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE strata_flags ${arg_DEPENDS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../tests")
  target_compile_definitions(${name} PRIVATE ${arg_DEFINES})
  target_compile_options(${name} PRIVATE "SHELL:-include \"${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../tests/support/printing/params.h\"")
  add_dependencies(strata_tests ${name})
  set_property(GLOBAL APPEND_STRING PROPERTY STRATA_TEST_PROGRAMS "$<TARGET_FILE:${name}>\n")
  # Most of the time is that of headers and templates, which the files of a unit share; so the files of a program use
  # different names.
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  # The tested code is optimised; matchers take twice as long to compile at -O3.
  target_compile_options(${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  if("gpu" IN_LIST arg_LABELS)
    # For scripts/gpu_verify.sh, which may run on another machine with a copy of the build.
    cmake_path(RELATIVE_PATH CMAKE_CURRENT_BINARY_DIR BASE_DIRECTORY "${CMAKE_BINARY_DIR}" OUTPUT_VARIABLE dir)
    file(APPEND "${CMAKE_BINARY_DIR}/gpu_tests.txt" "${dir}/${name}\n")
  endif()
  # ctest includes the file, which adds a test for each suite.
  set(suites "${CMAKE_CURRENT_BINARY_DIR}/${name}_suites")
  file(GENERATE OUTPUT "${suites}.cmake" CONTENT "set(PREFIX ${name})
set(PROGRAM [==[$<TARGET_FILE:${name}>]==])
set(EMULATOR \"${CMAKE_CROSSCOMPILING_EMULATOR}\")
set(LIST [==[${suites}.txt]==])
set(RESULTS [==[${CMAKE_BINARY_DIR}/results]==])
set(DIRECTORY [==[${CMAKE_CURRENT_BINARY_DIR}]==])
set(LABELS [==[${arg_LABELS}]==])
include([==[${PROJECT_SOURCE_DIR}/cmake/AddSuites.cmake]==])
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${suites}.cmake")
endfunction()
