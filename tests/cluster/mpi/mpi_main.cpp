// The main function of the tests on MPI. Each process runs all cases; all but the first print only
// what fails.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "mpi_job.hpp"
#include "opkit/backends/mpi/cluster.hpp"

namespace mpi_test {
namespace {
opkit::CommunicatorPtr job;
}
const opkit::CommunicatorPtr& Job() { return job; }
}  // namespace mpi_test

int main(int argc, char** argv) {
  opkit::MpiCluster cluster;
  mpi_test::job = cluster.communicator();
  doctest::Context context(argc, argv);
  if (mpi_test::job->process() > 0) context.setOption("minimal", true);
  const int failed = context.run();
  mpi_test::job = {};
  return failed;
}
