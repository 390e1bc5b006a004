# Runs fault_table.cmake on one row and invented results.
cmake_minimum_required(VERSION 3.25)
set(row "| F1 | a fault | survives | `runtime/status_test` `StatusTest.Holds`; `runtime/fake_cuda_test` `FakeCudaTest.Absent` |")
file(WRITE "${WORK}/faults.md" "${row}\n")
file(WRITE "${WORK}/tests/runtime/status_test.cpp" "TEST_P(StatusTest, Holds) {}\n")
file(WRITE "${WORK}/tests/runtime/fake_cuda_test.cpp" "TEST(FakeCudaTest, Absent) {}\n")

set(passed " />")
set(failed ">\n      <failure message=\"a &lt; b; c\" type=\"\"><![CDATA[a]]></failure>\n    </testcase>")
set(skipped ">\n      <skipped message=\"no; [b]\"><![CDATA[a]]></skipped>\n    </testcase>")

# expect(EXIT_CODE WORDS RESULT...): each result is "Suite.Case=state".
function(expect want words)
  set(text "<testsuites>\n")
  foreach(result IN LISTS ARGN)
    string(REGEX MATCH "^([^.]*)[.](.*)=(.*)$" result "${result}")
    string(APPEND text "    <testcase name=\"${CMAKE_MATCH_2}\" value_param=\"[1];&lt;2&gt;\" status=\"run\" "
      "classname=\"${CMAKE_MATCH_1}\"${${CMAKE_MATCH_3}}\n")
  endforeach()
  file(REMOVE_RECURSE "${WORK}/results")
  file(WRITE "${WORK}/results/runtime_test.StatusTest.xml" "${text}</testsuites>\n")
  execute_process(COMMAND ${CMAKE_COMMAND} "-DSOURCE=${WORK}" "-DTABLE=${WORK}/faults.md" -DMIN_ROWS=1 "-DRESULTS=${WORK}/results"
    -DABSENT=fake_cuda_test ${options} -P "${SOURCE}/tests/build/fault_table.cmake"
    RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  string(FIND "${said}" "${words}" at)
  if(NOT code EQUAL want OR at EQUAL -1)
    message(SEND_ERROR "${ARGN}: exit code ${code}, wanted ${want}; '${words}' is to be in: ${said}")
  endif()
endfunction()

expect(0 "1 rows, 2 tests" "StatusTest.Holds=passed")
expect(0 "1 rows, 2 tests" "All/StatusTest.Holds/a=passed" "All/StatusTest.Holds/b=passed")
expect(1 "StatusTest.Holds was skipped" "StatusTest.Holds=skipped")
expect(1 "All/StatusTest.Holds/b was skipped" "All/StatusTest.Holds/a=passed" "All/StatusTest.Holds/b=skipped")
expect(1 "StatusTest.Holds failed" "StatusTest.Holds=failed")
expect(1 "StatusTest.Holds (status_test) did not run" "StatusTest.HoldsToo=passed" "OtherStatusTest.Holds=passed")

# Only tests that mount may be skipped where nothing may be mounted.
set(options -DMOUNTS=OFF)
expect(1 "StatusTest.Holds was skipped" "StatusTest.Holds=skipped")
string(REPLACE "StatusTest.Holds" "NvmeCreateTest.SmallTmpfsSaysNeededAndFree" row "${row}")
file(WRITE "${WORK}/faults.md" "${row}\n")
file(WRITE "${WORK}/tests/runtime/status_test.cpp" "TEST(NvmeCreateTest, SmallTmpfsSaysNeededAndFree) {}\n")
expect(0 "was skipped: no file system may be mounted here" "NvmeCreateTest.SmallTmpfsSaysNeededAndFree=skipped")
expect(1 "SmallTmpfsSaysNeededAndFree failed" "NvmeCreateTest.SmallTmpfsSaysNeededAndFree=failed")
set(options -DMOUNTS=ON)
expect(1 "SmallTmpfsSaysNeededAndFree was skipped" "NvmeCreateTest.SmallTmpfsSaysNeededAndFree=skipped")
