# How targets are declared: lastflop_add_library, lastflop_add_executable, lastflop_add_test.

add_library(lastflop_warnings INTERFACE)
# Structs are plain data with defaults: a designated initializer names what differs from them.
set(LASTFLOP_WARNING_FLAGS
    -Wall -Wextra -Wconversion -Wshadow -Wno-missing-field-initializers)
if(LASTFLOP_WERROR)
  list(APPEND LASTFLOP_WARNING_FLAGS -Werror)
endif()
target_compile_options(lastflop_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${LASTFLOP_WARNING_FLAGS}>")

# What most files include, compiled once for all libraries. Headers of other projects only: ours change.
# Flags and definitions are those of every library, else gcc refuses the precompiled header.
if(LASTFLOP_UNITY)
  add_library(lastflop_pch STATIC ${CMAKE_SOURCE_DIR}/cmake/precompiled.cc)
  target_link_libraries(lastflop_pch PRIVATE lastflop_warnings lastflop_product_flags)
  target_compile_options(lastflop_pch PRIVATE -Wno-subobject-linkage)
  target_precompile_headers(lastflop_pch PRIVATE
    <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <functional> <limits> <map>
    <memory> <numeric> <optional> <set> <span> <sstream> <string> <utility> <variant> <vector>
    <absl/status/status.h> <absl/status/statusor.h> <absl/strings/match.h>
    <absl/strings/str_cat.h> <absl/strings/str_format.h> <absl/strings/str_join.h>
    <absl/strings/str_split.h>)
endif()

# lastflop_add_library(NAME SOURCES a.cc ... DEPS lib ... [PRIVATE_DEPS lib ...] [ALONE a.cc ...] [COLD])
# One static library lastflop::NAME; includes are written from the root of the repository. ALONE: those
# of SOURCES that share a name of their anonymous namespace with another; LASTFLOP_UNITY compiles
# several of the others as one file. COLD: runs for moments and is compiled for longer.
function(lastflop_add_library name)
  cmake_parse_arguments(ARG "COLD" "" "SOURCES;DEPS;PRIVATE_DEPS;ALONE" ${ARGN})
  add_library(lastflop_${name} STATIC ${ARG_SOURCES})
  add_library(lastflop::${name} ALIAS lastflop_${name})
  target_include_directories(lastflop_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(lastflop_${name} PUBLIC ${ARG_DEPS}
    PRIVATE ${ARG_PRIVATE_DEPS} lastflop_warnings lastflop_product_flags)
  if(ARG_COLD)
    target_compile_options(lastflop_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
  if(LASTFLOP_UNITY)
    set_target_properties(lastflop_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
    # A type of a .cc file may have members of types that only it knows; a file that includes it
    # must not.
    target_compile_options(lastflop_${name} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
    set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    if(NOT ARG_SOURCES MATCHES "\\.cu")
      target_precompile_headers(lastflop_${name} REUSE_FROM lastflop_pch)
    endif()
  endif()
endfunction()

# lastflop_add_executable(NAME SOURCES a.cc ... DEPS lib ...)
function(lastflop_add_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} lastflop_warnings lastflop_product_flags)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)  # A main is always cold.
  if(LASTFLOP_UNITY)
    # The libraries' precompiled header is of position-independent code.
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
    target_precompile_headers(${name} REUSE_FROM lastflop_pch)
  endif()
endfunction()

# lastflop_add_test(NAME x_test SOURCES x_test.cc ... DEPS lib ... [LABELS unit|e2e|gpu|multigpu]
#                   [TIMEOUT seconds])
# One ctest entry per binary, labelled with its kind and its room (the folder under tests/), and
# part of the target tests_<room>. tests/main/test_main.cc is its main: a binary whose tests all
# skip shows as skipped, one with a failed test never does. GPU tests hold the resource lock `gpu`.
function(lastflop_add_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME room)
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_include_directories(${ARG_NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE
    ${ARG_DEPS} lastflop_test_main lastflop_test_flags lastflop_warnings)
  target_precompile_headers(${ARG_NAME} REUSE_FROM lastflop_test_pch)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT TARGET tests_${room})
    add_custom_target(tests_${room})
  endif()
  add_dependencies(tests_${room} ${ARG_NAME})
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${ARG_NAME} PROPERTIES
    LABELS "${ARG_LABELS};${room}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "LASTFLOP_BIN_DIR=${CMAKE_BINARY_DIR}/bin")
  if("gpu" IN_LIST ARG_LABELS OR "multigpu" IN_LIST ARG_LABELS)
    set_tests_properties(${ARG_NAME} PROPERTIES RESOURCE_LOCK gpu)
  endif()
endfunction()
