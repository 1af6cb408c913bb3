# `cmake --install` gives a relocatable tree that runs where only libc (and a GPU's driver) is:
#   bin/             lastflop, lastflopd, lastflop-worker, stripped
#   lib/             every shared library they need beside libc
#   share/lastflop/  experiments/ and db/schema/, found relative to the binary (common/share_path.h)
set(LASTFLOP_BINARIES lastflop lastflopd lastflop-worker)

# A DT_RPATH, unlike a RUNPATH, also holds for the libraries that the libraries in lib/ need.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")

function(lastflop_install_tree)
  # The same tree for binaries that run where they were built.
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/lastflop/db)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/experiments ${CMAKE_BINARY_DIR}/share/lastflop/experiments
       SYMBOLIC)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/db/schema ${CMAKE_BINARY_DIR}/share/lastflop/db/schema
       SYMBOLIC)

  # What `make` builds: all but the tests.
  add_custom_target(lastflop_binaries)
  set(binaries)
  foreach(binary IN LISTS LASTFLOP_BINARIES)
    if(TARGET ${binary})
      add_dependencies(lastflop_binaries ${binary})
      target_link_options(${binary} PRIVATE -Wl,--disable-new-dtags)
      install(TARGETS ${binary} RUNTIME DESTINATION bin)
      list(APPEND binaries ${binary})
    endif()
  endforeach()
  install(DIRECTORY experiments DESTINATION share/lastflop
          PATTERN "*.db*" EXCLUDE PATTERN results EXCLUDE)
  if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/db/schema)
    install(DIRECTORY db/schema DESTINATION share/lastflop/db)
  endif()
  install(CODE "set(LASTFLOP_BINARIES ${binaries})
set(LASTFLOP_STRIP ${CMAKE_STRIP})")
  install(SCRIPT ${CMAKE_SOURCE_DIR}/cmake/InstallLibraries.cmake)
endfunction()
