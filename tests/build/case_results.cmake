# read_cases(FOLDER OUT): the cases in the XML files that GoogleTest programs wrote, as "Instance/Suite.Case/param STATE",
# where STATE is passed, failed or skipped. A program that crashed has written no file, so its cases are absent.
function(read_cases folder out)
  set(cases "")
  file(GLOB files "${folder}/*.xml")
  foreach(file IN LISTS files)
    # Brackets and semicolons break CMake lists.
    file(READ "${file}" text)
    string(REGEX REPLACE "[][;]" "_" text "${text}")
    string(REGEX MATCHALL "<testcase name=\"[^\"]*\"[^>]* classname=\"[^\"]*\"( />|>[ \n]*<(failure|skipped))" found "${text}")
    list(TRANSFORM found REPLACE "^<testcase name=\"([^\"]*)\"[^>]* classname=\"([^\"]*)\"(.*)$" "\\2.\\1 \\3")
    list(TRANSFORM found REPLACE " />$" "passed")
    list(TRANSFORM found REPLACE ">[ \n]*<failure$" "failed")
    list(TRANSFORM found REPLACE ">[ \n]*<skipped$" "skipped")
    list(APPEND cases ${found})
  endforeach()
  set(${out} "${cases}" PARENT_SCOPE)
endfunction()
