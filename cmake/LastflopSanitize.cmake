# LASTFLOP_SANITIZE=address,undefined or thread: one build folder per choice (presets asan, tsan).
# The product is instrumented. Tests are instrumented for `thread` only, which must see every access:
# for the others their objects are the plain build's, so that ccache has them.
set(LASTFLOP_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=")

# Line numbers in a backtrace are worth their compile time, variables are not.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")

# What is compiled into the binaries, and what only tests are made of.
add_library(lastflop_product_flags INTERFACE)
add_library(lastflop_test_flags INTERFACE)
# -pthread, which some libraries ask for, is for all: they share precompiled headers.
target_compile_options(lastflop_product_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-pthread>)
# Tests run for a moment and are compiled for longer.
target_compile_options(lastflop_test_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-O1;-pthread>)

if(LASTFLOP_SANITIZE)
  set(instrumented -fsanitize=${LASTFLOP_SANITIZE} -fno-sanitize-recover=all
                   -fno-omit-frame-pointer)
  # A check of every pointer before each use makes code that compiles ten times as long; the address
  # sanitizer finds what matters of it.
  if(LASTFLOP_SANITIZE MATCHES "undefined")
    list(APPEND instrumented -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  # -O1 keeps stacks readable and the tests quick enough. gcc guesses wrongly at what instrumented
  # code initializes.
  target_compile_options(lastflop_product_flags INTERFACE
    -O1 -UNDEBUG -Wno-maybe-uninitialized ${instrumented})
  if(LASTFLOP_SANITIZE STREQUAL "thread")
    target_compile_options(lastflop_test_flags INTERFACE ${instrumented})
    add_link_options(-Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/tsan_symbols.map)
  endif()
  add_link_options(-fsanitize=${LASTFLOP_SANITIZE})
endif()
