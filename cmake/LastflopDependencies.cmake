# Everything lastflop takes from outside, found by package. Nothing is downloaded here.

find_program(LASTFLOP_CCACHE ccache)
if(LASTFLOP_CCACHE)
  # The base folder lets every build folder of this tree (and of a clone of it) share one cache;
  # the rest is what ccache wants for precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${LASTFLOP_CCACHE})
endif()

# Finds a package or says which Debian or Ubuntu package to install.
macro(lastflop_require name debian_package)
  find_package(${name} ${ARGN} QUIET)
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "lastflop needs ${name}: install the package ${debian_package} "
                        "(tools/setup.sh installs all of them)")
  endif()
endmacro()

lastflop_require(Threads libc6-dev)
lastflop_require(absl libabsl-dev CONFIG)
lastflop_require(Protobuf libprotobuf-dev)
lastflop_require(gRPC libgrpc++-dev CONFIG)
if(NOT TARGET re2::re2)  # gRPC, which matches with it too, has found it.
  lastflop_require(re2 libre2-dev)
endif()
lastflop_require(SQLite3 libsqlite3-dev)
lastflop_require(yaml-cpp libyaml-cpp-dev CONFIG)
lastflop_require(nlohmann_json nlohmann-json3-dev CONFIG)
lastflop_require(CLI11 libcli11-dev CONFIG)
if(LASTFLOP_TESTS)
  lastflop_require(GTest libgtest-dev)
  lastflop_require(benchmark libbenchmark-dev CONFIG)
endif()

# The system's Python: the one that has the packages that tools/setup.sh installs.
find_program(LASTFLOP_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(LASTFLOP_PYTHON python3)
if(LASTFLOP_TESTS AND NOT LASTFLOP_PYTHON)
  message(FATAL_ERROR "lastflop's tests need python3: install the package python3")
endif()
