// The communicator of the test's process, which main makes.
#ifndef OPKIT_TESTS_CLUSTER_MPI_MPI_JOB_HPP_
#define OPKIT_TESTS_CLUSTER_MPI_MPI_JOB_HPP_

#include "opkit/cluster/communicator.hpp"

namespace mpi_test {

const opkit::CommunicatorPtr& Job();

}  // namespace mpi_test

#endif  // OPKIT_TESTS_CLUSTER_MPI_MPI_JOB_HPP_
