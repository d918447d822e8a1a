// MpiCommunicator: the communicator of the processes of an MPI job. MpiCluster
// (opkit/backends/mpi/cluster.hpp) makes it.
#ifndef OPKIT_BACKENDS_MPI_MPI_COMMUNICATOR_HPP_
#define OPKIT_BACKENDS_MPI_MPI_COMMUNICATOR_HPP_

#include "opkit/backends/mpi/progress.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

class MpiCommunicator final : public MpiMember {
 public:
  static CommunicatorPtr Make(IntrusivePtr<MpiLink> link);
  ~MpiCommunicator() override;

  int process() const override { return link_->progress().process(); }
  int processes() const override { return link_->progress().processes(); }
  std::string_view backend() const override { return "mpi"; }
  CommunicatorPtr Duplicate() override;
  std::vector<std::string> Exchange(const std::string& text) override;
  void MakeGroup(const std::vector<int>& group) override;

 private:
  explicit MpiCommunicator(IntrusivePtr<MpiLink> link) : link_(std::move(link)) {}
  void DoStart(IntrusivePtr<Communication> communication, const std::vector<int>& group) override;
  void TellBroken(const std::string& reason) noexcept override;
  void FailPending(const std::exception_ptr& error) noexcept override;
  void CheckNotBroken() const;
  // Waits for the end of requests, which use `memory`.
  void Await(std::vector<MPI_Request> requests, IntrusivePtr<RefCounted> memory);

  const IntrusivePtr<MpiLink> link_;
  std::atomic<int> duplicates_ = 0;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/backends/mpi/impl/mpi_communicator.ipp"
#endif

#endif  // OPKIT_BACKENDS_MPI_MPI_COMMUNICATOR_HPP_
