# Included by ctest. Adds a test for each suite of the GoogleTest program PROGRAM, which runs all its cases in one
# process: what a suite prepares once, it then prepares once. The parameterised instances of a suite are one test.
# EMULATOR runs programs of another architecture; it is empty for this one. The results of the cases go to
# RESULTS/<test>.xml. The list of suites is kept in LIST until the program changes.
cmake_minimum_required(VERSION 3.25)

# Lists the suites of the program, as lines of `name;filter`.
function(strata_list_suites program list)
  execute_process(COMMAND ${EMULATOR} "${program}" --gtest_list_tests OUTPUT_VARIABLE output RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${program} --gtest_list_tests: ${failed}")
  endif()
  string(REGEX MATCHALL "\n[A-Za-z][A-Za-z0-9_/]*[.]" found "\n${output}")
  set(names "")
  foreach(suite IN LISTS found)
    string(REGEX REPLACE "[\n.]" "" suite "${suite}")
    # Instances are called Instance/Suite, types Suite/0.
    string(REGEX REPLACE "/[0-9]+$" "" name "${suite}")
    string(REGEX REPLACE "^.*/" "" name "${name}")
    list(APPEND names "${name}")
    list(APPEND filter_of_${name} "${suite}.*")
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(lines "")
  foreach(name IN LISTS names)
    string(REPLACE ";" ":" filter "${filter_of_${name}}")
    string(APPEND lines "${name} ${filter}\n")
  endforeach()
  file(WRITE "${list}" "${lines}")
endfunction()

if(NOT EXISTS "${PROGRAM}")
  add_test("${PREFIX}_NOT_BUILT" "${PREFIX}_NOT_BUILT")
  return()
endif()
if(NOT EXISTS "${LIST}" OR "${PROGRAM}" IS_NEWER_THAN "${LIST}" OR "${CMAKE_CURRENT_LIST_FILE}" IS_NEWER_THAN "${LIST}")
  strata_list_suites("${PROGRAM}" "${LIST}")
endif()
file(STRINGS "${LIST}" suites)
foreach(suite IN LISTS suites)
  string(REGEX REPLACE " .*$" "" name "${suite}")
  string(REGEX REPLACE "^[^ ]* " "" filter "${suite}")
  add_test("${PREFIX}.${name}" ${EMULATOR} "${PROGRAM}" "--gtest_filter=${filter}" "--gtest_output=xml:${RESULTS}/${PREFIX}.${name}.xml")
  # Programs use a GPU unless they are told otherwise; tests that are not about one run as on a machine without.
  if(NOT "gpu" IN_LIST LABELS)
    set_tests_properties("${PREFIX}.${name}" PROPERTIES ENVIRONMENT "CUDA_VISIBLE_DEVICES=")
  endif()
  # A suite counts as skipped if all its cases were.
  set_tests_properties("${PREFIX}.${name}" PROPERTIES TIMEOUT 1800 LABELS "${LABELS}" WORKING_DIRECTORY "${DIRECTORY}"
    SKIP_REGULAR_EXPRESSION "PASSED  . 0 tests[.]\n(.  SKIPPED . [^\n]*\n)+(\n *YOU HAVE [^\n]*\n*)?$")
endforeach()
