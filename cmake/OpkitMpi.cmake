# The MPI of opkit::mpi. The types of MPI differ between its implementations, so a program must use the
# one that opkit::mpi was compiled with.

# Sets `out` to the implementation and the version that the header of MPI::MPI_CXX names, such as
# "MPICH 4.0.2"; to an empty text if it names none.
function(opkit_get_mpi_name out)
  get_target_property(folders MPI::MPI_CXX INTERFACE_INCLUDE_DIRECTORIES)
  # A compiler that is itself the MPI's has the folder without an option.
  find_file(header mpi.h PATHS ${folders} ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES} NO_DEFAULT_PATH NO_CACHE)
  set(name "")
  if(header)
    file(STRINGS ${header} lines REGEX "^#define +(OMPI_[A-Z]+_VERSION|MPICH_VERSION) ")
    if(lines MATCHES "MPICH_VERSION +\"([^\"]+)\"")
      set(name "MPICH ${CMAKE_MATCH_1}")
    elseif(lines MATCHES "OMPI_MAJOR_VERSION ([0-9]+).*OMPI_MINOR_VERSION ([0-9]+).*OMPI_RELEASE_VERSION ([0-9]+)")
      set(name "Open MPI ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
    endif()
  endif()
  set(${out} "${name}" PARENT_SCOPE)
endfunction()

# Sets `out` to the file to which the system's alternatives lead from `compiler`: from /usr/bin/mpicxx by
# /etc/alternatives/mpicxx to /usr/bin/mpicxx.mpich. The administrator can change these links. Other
# links stay, because a compiler of Open MPI reads the name by which it is called.
function(opkit_resolve_alternatives compiler out)
  while(IS_SYMLINK "${compiler}")
    file(READ_SYMLINK "${compiler}" target)
    cmake_path(GET compiler PARENT_PATH folder)
    cmake_path(ABSOLUTE_PATH target BASE_DIRECTORY "${folder}" NORMALIZE)
    if(NOT "${compiler} ${target}" MATCHES "/alternatives/")
      break()
    endif()
    set(compiler "${target}")
  endwhile()
  set(${out} "${compiler}" PARENT_SCOPE)
endfunction()

# Sets `out` to TRUE if the project has chosen an MPI, by a variable of FindMPI or by the compiler of the
# project.
function(opkit_is_mpi_chosen out)
  set(is_chosen FALSE)
  foreach(variable MPI_HOME MPI_EXECUTABLE_SUFFIX MPIEXEC_EXECUTABLE MPI_COMPILER MPI_C_COMPILER
      MPI_CXX_COMPILER MPI_CXX_HEADER_DIR MPI_CXX_INCLUDE_PATH MPI_CXX_COMPILER_INCLUDE_DIRS
      MPI_CXX_ADDITIONAL_INCLUDE_DIRS MPI_CXX_LIB_NAMES MPI_CXX_LIBRARIES MPI_LIBRARY
      MPI_GUESS_LIBRARY_NAME MPI_SKIP_COMPILER_WRAPPER)
    if(${variable})
      set(is_chosen TRUE)
    endif()
  endforeach()
  get_filename_component(name "${CMAKE_CXX_COMPILER}" NAME)
  if(name MATCHES "^mpi" OR NOT "$ENV{MPI_HOME}$ENV{I_MPI_ROOT}" STREQUAL "")
    set(is_chosen TRUE)
  endif()
  set(${out} ${is_chosen} PARENT_SCOPE)
endfunction()

# Finds MPI for the installed opkit::mpi, which was compiled with the implementation `name` by the
# compiler `compiler`: the MPI of that compiler, unless the project chooses another one. Sets
# opkit_mpi_WHY_NOT if that is another implementation. A project that names components of opkit, and not
# mpi, keeps the choice for its own find_package(MPI): nothing is then looked for.
function(opkit_find_mpi name compiler)
  unset(opkit_mpi_WHY_NOT PARENT_SCOPE)
  if(NOT TARGET MPI::MPI_CXX)
    if(opkit_FIND_COMPONENTS AND NOT "mpi" IN_LIST opkit_FIND_COMPONENTS)
      return()
    endif()
    opkit_is_mpi_chosen(is_chosen)
    if(NOT is_chosen AND EXISTS "${compiler}")
      set(MPI_CXX_COMPILER "${compiler}")  # for the next line alone
    endif()
    find_package(MPI QUIET COMPONENTS CXX)
  endif()
  if(TARGET MPI::MPI_CXX)
    opkit_get_mpi_name(found)
    string(REGEX REPLACE " [0-9].*" "" found_kind "${found}")
    string(REGEX REPLACE " [0-9].*" "" kind "${name}")
    if(found AND kind AND NOT found_kind STREQUAL kind)
      if(NOT EXISTS "${compiler}")
        set(compiler "the mpicxx of ${kind}")
      endif()
      string(CONCAT why_not "it was compiled with ${name}, and this project uses ${found}; set "
        "MPI_CXX_COMPILER to ${compiler}, in a new build folder")
      set(opkit_mpi_WHY_NOT "${why_not}" PARENT_SCOPE)
    endif()
  endif()
endfunction()
