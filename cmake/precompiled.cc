// The object that carries the precompiled header of the libraries (cmake/LastflopTargets.cmake).
