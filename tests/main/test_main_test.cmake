# A binary passes when one of its tests does, skips (77) when all do, and fails when one does,
# whatever the others did; the last also when no test passed.
function(expect_exit expected)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
  if(NOT code EQUAL expected)
    message(SEND_ERROR "${ARGN}: exit code ${code}, expected ${expected}")
  endif()
endfunction()

expect_exit(0 ${BIN}/outcome_passes)
expect_exit(77 ${BIN}/outcome_skips)
expect_exit(1 ${BIN}/outcome_fails)
expect_exit(1 ${BIN}/outcome_fails --gtest_filter=-*PassesOne)
