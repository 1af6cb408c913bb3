# LASTFLOP_SANITIZE=address,undefined or thread: one build folder per choice (presets asan, tsan).
set(LASTFLOP_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=")
if(LASTFLOP_SANITIZE)
  # -O1 keeps stacks readable and the tests quick enough; -g1 is lines without variables.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  add_compile_options(-fsanitize=${LASTFLOP_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LASTFLOP_SANITIZE})
else()
  # Line numbers in a backtrace are worth their compile time, variables are not.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
endif()
