// Definitions of MpiCluster's members.
#ifndef OPKIT_BACKENDS_MPI_IMPL_CLUSTER_IPP_
#define OPKIT_BACKENDS_MPI_IMPL_CLUSTER_IPP_

#include <cstdlib>
#include <exception>
#include <string>

#include "opkit/backends/mpi/cluster.hpp"
#include "opkit/base/error.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Throws if mpirun started several processes, but each is alone for this MPI. The variables are
// those of Open MPI's mpirun and of MPICH's.
inline void CheckLauncher() {
  int processes = 0;
  CheckMpi(MPI_Comm_size(MPI_COMM_WORLD, &processes), "MPI_Comm_size");
  if (processes != 1) return;
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* const started = std::getenv(variable);
    if (!started || std::atoi(started) <= 1) continue;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(version, &length);
    const std::string_view text(version, static_cast<size_t>(length));
    Throw(ErrorCode::kFailedPrecondition, "mpirun started ", started,
          " processes, but each of them is alone: the program was built with another MPI (",
          text.substr(0, text.find_first_of(",\n")), "); start it by the mpirun of that MPI");
  }
}

}  // namespace detail

OPKIT_INLINE MpiCluster::MpiCluster(const MpiOptions& options)
    : exceptions_(std::uncaught_exceptions()) {
  int is_initialized = 0, is_finalized = 0, level = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (is_finalized)
    Throw(ErrorCode::kFailedPrecondition,
          "MPI has been finalised, and a process initialises it only once; keep one MpiCluster "
          "until the end of the program");
  if (!is_initialized) {
    detail::CheckMpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level),
                     "MPI_Init_thread");
    initialized_ = true;
  } else {
    MPI_Query_thread(&level);
  }
  if (level < MPI_THREAD_MULTIPLE) {
    if (initialized_) MPI_Finalize();
    Throw(ErrorCode::kFailedPrecondition, "MPI has the thread level ", level,
          ", but an MpiCluster needs MPI_THREAD_MULTIPLE (", StrCat(MPI_THREAD_MULTIPLE, "): "),
          initialized_ ? "this MPI was built without it"
                       : "call MPI_Init_thread with it, or let MpiCluster initialise MPI");
  }
  try {
    detail::CheckLauncher();
  } catch (...) {
    if (initialized_) MPI_Finalize();
    throw;
  }
  progress_ = detail::MakeIntrusive<detail::MpiProgress>(
      options.processes, options.deadline.is_forever() ? INT64_MAX / 2 : options.deadline.ns());
  MPI_Comm comm = MPI_COMM_NULL;
  try {
    detail::CheckMpi(MPI_Comm_dup(options.processes, &comm), "MPI_Comm_dup");
  } catch (const Error& error) {
    progress_->Close(error.what());
    throw;
  }
  communicator_ =
      detail::MpiCommunicator::Make(detail::MakeIntrusive<detail::MpiLink>(progress_, comm, "0"));
}
OPKIT_INLINE MpiCluster::~MpiCluster() {
  const int process = progress_->process();
  const bool fails = std::uncaught_exceptions() > exceptions_;
  progress_->Close(fails ? StrCat("process ", process, " has left because of an exception")
                         : std::string());
  communicator_ = {};
  if (initialized_ && !progress_->has_dead_process()) MPI_Finalize();
}

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_MPI_IMPL_CLUSTER_IPP_
