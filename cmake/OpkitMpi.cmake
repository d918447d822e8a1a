# The MPI of opkit::mpi. The types of MPI differ between its implementations, so a program must use the
# one that opkit::mpi was compiled with.

# Sets `out` to the implementation and the version that the header of MPI::MPI_CXX names, such as
# "MPICH 4.0.2"; to an empty text if it names none.
function(opkit_get_mpi_name out)
  get_target_property(folders MPI::MPI_CXX INTERFACE_INCLUDE_DIRECTORIES)
  find_file(header mpi.h PATHS ${folders} NO_DEFAULT_PATH NO_CACHE)
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

# Finds MPI for the installed opkit::mpi, which was compiled with the implementation `name` by the
# compiler `compiler`: the MPI of that compiler, unless the project chooses another one. Sets
# opkit_mpi_WHY_NOT if that is another implementation.
macro(opkit_find_mpi name compiler)
  unset(opkit_mpi_WHY_NOT)
  if(NOT TARGET MPI::MPI_CXX AND NOT MPI_CXX_COMPILER AND EXISTS "${compiler}")
    set(MPI_CXX_COMPILER "${compiler}")
  endif()
  find_package(MPI QUIET COMPONENTS CXX)
  if(TARGET MPI::MPI_CXX)
    opkit_get_mpi_name(opkit_mpi_found)
    string(REGEX REPLACE " [0-9].*" "" opkit_mpi_found_kind "${opkit_mpi_found}")
    string(REGEX REPLACE " [0-9].*" "" opkit_mpi_kind "${name}")
    if(opkit_mpi_found AND opkit_mpi_kind AND NOT opkit_mpi_found_kind STREQUAL opkit_mpi_kind)
      string(CONCAT opkit_mpi_WHY_NOT "it was compiled with ${name}, and this project uses "
        "${opkit_mpi_found}; set MPI_CXX_COMPILER to ${compiler}, in a new build folder")
    endif()
  endif()
endmacro()
