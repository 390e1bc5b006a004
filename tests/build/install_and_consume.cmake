# Installs the build to a folder, moves that folder (a package must not depend on where it was built), builds
# the consumer against it and runs it.
cmake_policy(VERSION 3.25)

function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "exit ${code}: ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
must(${CMAKE_COMMAND} --install "${BUILD}" --config "${CONFIG}" --prefix "${WORK}/made")
file(RENAME "${WORK}/made" "${WORK}/prefix")

file(GLOB_RECURSE package_files "${WORK}/prefix/*.cmake")
foreach(file IN LISTS package_files)
  file(READ "${file}" text)
  foreach(path "${SOURCE}" "${WORK}/made")
    string(FIND "${text}" "${path}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} contains the path ${path}")
    endif()
  endforeach()
endforeach()

# Whoever includes an installed header needs no other.
file(GLOB_RECURSE headers RELATIVE "${WORK}/prefix/include" "${WORK}/prefix/include/*")
foreach(header IN LISTS headers)
  file(STRINGS "${WORK}/prefix/include/${header}" lines REGEX "^[ \t]*#[ \t]*include[ \t]*(\"|<strata[/.])")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[^<\"]*[<\"]([^>\"]+)[>\"].*$" "\\1" included "${line}")
    if(NOT included IN_LIST headers)
      message(FATAL_ERROR "${header} is installed, and ${included}, which it includes, is not")
    endif()
  endforeach()
endforeach()
# The modules' own headers stay in the tree.
if("strata/config/train_config.h" IN_LIST headers OR "strata/graph/program.h" IN_LIST headers)
  message(FATAL_ERROR "headers that are no part of the API are installed: ${headers}")
endif()

must(${CMAKE_COMMAND} -S "${CONSUMER}" -B "${WORK}/build" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
  "-DCMAKE_BUILD_TYPE=${CONFIG}" "-DCMAKE_PREFIX_PATH=${WORK}/prefix")
must(${CMAKE_COMMAND} --build "${WORK}/build")
execute_process(COMMAND "${WORK}/build/consumer" "${SOURCE}/README.md" WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code
  OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "exit ${code}: the consumer\n${output}")
endif()
foreach(says "step 2 of 2" "exported" "from 1 to 0.875" "1 allocation counted")
  string(FIND "${output}" "${says}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "the consumer does not print '${says}':\n${output}")
  endif()
endforeach()
must("${WORK}/prefix/bin/strata" --version)

# The C library by its CMake package and by pkg-config.
set(program "${SOURCE}/tests/capi/consumer.c")
must(${CMAKE_COMMAND} -S "${CONSUMER}/../c_consumer" -B "${WORK}/c_build" -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${WORK}/prefix"
  "-DPROGRAM=${program}")
must(${CMAKE_COMMAND} --build "${WORK}/c_build")
must("${WORK}/c_build/c_consumer")
file(GLOB_RECURSE pc "${WORK}/prefix/strata.pc")
cmake_path(GET pc PARENT_PATH pc_folder)
must(${CMAKE_COMMAND} -E env "PKG_CONFIG_PATH=${pc_folder}" pkg-config --cflags --libs strata)
string(STRIP "${output}" flags)
separate_arguments(flags)
cmake_path(GET pc_folder PARENT_PATH libraries)
must(cc "${program}" ${flags} "-Wl,-rpath,${libraries}" -o "${WORK}/c_program")
must("${WORK}/c_program")

# Beside strata.h, so that strata::c suffices; it is compiled in the tree, since LibTorch takes long.
foreach(header strata.h strata/torch.hpp)
  if(NOT EXISTS "${WORK}/prefix/include/${header}")
    message(FATAL_ERROR "${header} is not installed")
  endif()
endforeach()
