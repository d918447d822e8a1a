// The communicator on MPI.
#include "opkit/backends/mpi/impl/all_reduce.ipp"
#include "opkit/backends/mpi/impl/cluster.ipp"
#include "opkit/backends/mpi/impl/mpi_communicator.ipp"
#include "opkit/backends/mpi/impl/progress.ipp"
#include "opkit/backends/mpi/impl/types.ipp"
#include "opkit/backends/mpi/impl/work.ipp"
