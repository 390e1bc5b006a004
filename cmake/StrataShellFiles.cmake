# Manual pages and completions, which the command itself prints. Run by the build:
#   cmake -DSTRATA=program -DOUT=folder -P StrataShellFiles.cmake
function(write_output file)
  execute_process(COMMAND "${STRATA}" ${ARGN} OUTPUT_FILE "${file}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${OUT}")
file(MAKE_DIRECTORY "${OUT}/man1" "${OUT}/bash" "${OUT}/zsh" "${OUT}/fish")
write_output("${OUT}/bash/strata" completions bash)
write_output("${OUT}/zsh/_strata" completions zsh)
write_output("${OUT}/fish/strata.fish" completions fish)
write_output("${OUT}/man1/strata.1" man)
# Each completion of the first word is a verb, a tab and what the verb does.
execute_process(COMMAND "${STRATA}" complete "" OUTPUT_VARIABLE words COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[a-z]+\t" words "${words}")
foreach(word IN LISTS words)
  string(STRIP "${word}" verb)
  write_output("${OUT}/man1/strata-${verb}.1" man "${verb}")
endforeach()
