# Runs at install time: puts the shared libraries of LASTFLOP_BINARIES beside them and strips all.
set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
set(executables)
foreach(binary IN LISTS LASTFLOP_BINARIES)
  list(APPEND executables ${prefix}/bin/${binary})
endforeach()
if(NOT executables)
  return()
endif()

# libc and what comes with it, and the driver's libraries, belong to the host.
file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${executables}
  RESOLVED_DEPENDENCIES_VAR libraries
  UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES
    "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|mvec)\\.so"
    "^lib(cuda|nvidia-ml|nccl|cublas|cublasLt|cupti)\\.so")
if(missing)
  message(FATAL_ERROR "install: no such shared library: ${missing}")
endif()
foreach(library IN LISTS libraries)
  # The link's name is the one that binaries ask for; the file behind it is what is copied.
  get_filename_component(name ${library} NAME)
  file(REAL_PATH ${library} file)
  file(INSTALL ${file} DESTINATION ${prefix}/lib TYPE SHARED_LIBRARY)
  get_filename_component(file_name ${file} NAME)
  if(NOT file_name STREQUAL name)
    file(RENAME ${prefix}/lib/${file_name} ${prefix}/lib/${name})
  endif()
  list(APPEND executables ${prefix}/lib/${name})
endforeach()
execute_process(COMMAND ${LASTFLOP_STRIP} --strip-unneeded ${executables}
                COMMAND_ERROR_IS_FATAL ANY)
