# How targets are declared: lastflop_add_library, lastflop_add_executable, lastflop_add_test.

add_library(lastflop_warnings INTERFACE)
target_compile_options(lastflop_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow)
if(LASTFLOP_WERROR)
  target_compile_options(lastflop_warnings INTERFACE -Werror)
endif()

# lastflop_add_library(NAME SOURCES a.cc ... DEPS lib ... [PRIVATE_DEPS lib ...])
# One static library lastflop::NAME; includes are written from the root of the repository.
function(lastflop_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(lastflop_${name} STATIC ${ARG_SOURCES})
  add_library(lastflop::${name} ALIAS lastflop_${name})
  target_include_directories(lastflop_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(lastflop_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS}
                                                                    lastflop_warnings)
endfunction()

# lastflop_add_executable(NAME SOURCES a.cc ... DEPS lib ...)
function(lastflop_add_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} lastflop_warnings)
endfunction()

# lastflop_add_test(NAME x_test SOURCES x_test.cc ... DEPS lib ... [LABELS unit|e2e|gpu|multigpu]
#                   [TIMEOUT seconds])
# One ctest entry per binary. A binary whose tests all skip shows as skipped, not as passed; GPU
# tests hold the resource lock `gpu`.
function(lastflop_add_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_include_directories(${ARG_NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gmock_main
                                            lastflop_warnings)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${ARG_NAME} PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\] [0-9]+ tests?, listed below"
    ENVIRONMENT "LASTFLOP_BIN_DIR=${CMAKE_BINARY_DIR}/bin")
  if("gpu" IN_LIST ARG_LABELS OR "multigpu" IN_LIST ARG_LABELS)
    set_tests_properties(${ARG_NAME} PROPERTIES RESOURCE_LOCK gpu)
  endif()
endfunction()
