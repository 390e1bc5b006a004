# Runs fault_table.cmake on one row and invented results of ctest.
cmake_minimum_required(VERSION 3.25)
set(row "| F1 | a fault | survives | `runtime/status_test` `StatusTest.Holds`; `runtime/fake_cuda_test` `FakeCudaTest.Absent` |")
file(WRITE "${WORK}/faults.md" "${row}\n")
file(WRITE "${WORK}/tests/runtime/status_test.cpp" "TEST_P(StatusTest, Holds) {}\n")
file(WRITE "${WORK}/tests/runtime/fake_cuda_test.cpp" "TEST(FakeCudaTest, Absent) {}\n")

# expect(EXIT_CODE WORDS RESULT...): each result is "name=status".
function(expect want words)
  set(text "<testsuite>\n")
  foreach(result IN LISTS ARGN)
    string(REPLACE "=" "\" classname=\"x\" time=\"0\" status=\"" result "${result}")
    string(APPEND text "\t<testcase name=\"${result}\">\n\t\t<system-out>[ OK ]; a;b</system-out>\n\t</testcase>\n")
  endforeach()
  file(WRITE "${WORK}/results.xml" "${text}</testsuite>\n")
  execute_process(COMMAND ${CMAKE_COMMAND} "-DSOURCE=${WORK}" "-DTABLE=${WORK}/faults.md" -DMIN_ROWS=1 "-DRESULTS=${WORK}/results.xml"
    -DABSENT=fake_cuda_test ${options} -P "${SOURCE}/tests/build/fault_table.cmake"
    RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  string(FIND "${said}" "${words}" at)
  if(NOT code EQUAL want OR at EQUAL -1)
    message(SEND_ERROR "${ARGN}: exit code ${code}, wanted ${want}; '${words}' is to be in: ${said}")
  endif()
endfunction()

expect(0 "1 rows, 2 tests" "runtime_test.StatusTest.Holds=run")
expect(0 "1 rows, 2 tests" "runtime_test.All/StatusTest.Holds/a  # GetParam() = a=run" "runtime_test.All/StatusTest.Holds/b=run")
expect(1 "StatusTest.Holds: was skipped" "runtime_test.StatusTest.Holds=notrun")
expect(1 "All/StatusTest.Holds/b: was skipped" "runtime_test.All/StatusTest.Holds/a=run" "runtime_test.All/StatusTest.Holds/b=notrun")
expect(1 "StatusTest.Holds: fail" "runtime_test.StatusTest.Holds=fail")
expect(1 "StatusTest.Holds (status_test) did not run" "runtime_test.StatusTest.HoldsToo=run" "runtime_test.OtherStatusTest.Holds=run")

# Only tests that mount may be skipped where nothing may be mounted.
set(options -DMOUNTS=OFF)
expect(1 "StatusTest.Holds: was skipped" "runtime_test.StatusTest.Holds=notrun")
string(REPLACE "StatusTest.Holds" "NvmeCreateTest.SmallTmpfsSaysNeededAndFree" row "${row}")
file(WRITE "${WORK}/faults.md" "${row}\n")
file(WRITE "${WORK}/tests/runtime/status_test.cpp" "TEST(NvmeCreateTest, SmallTmpfsSaysNeededAndFree) {}\n")
expect(0 "was skipped: no file system may be mounted here" "runtime_test.NvmeCreateTest.SmallTmpfsSaysNeededAndFree=notrun")
expect(1 "SmallTmpfsSaysNeededAndFree: fail" "runtime_test.NvmeCreateTest.SmallTmpfsSaysNeededAndFree=fail")
set(options -DMOUNTS=ON)
expect(1 "SmallTmpfsSaysNeededAndFree: was skipped" "runtime_test.NvmeCreateTest.SmallTmpfsSaysNeededAndFree=notrun")
