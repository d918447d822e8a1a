// The definitions of Workspace, and Blob's errors.
#ifndef OPKIT_OP_IMPL_WORKSPACE_IPP_
#define OPKIT_OP_IMPL_WORKSPACE_IPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/op/workspace.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE bool Blob::HasName(const std::type_info& type) const {
  return type_ && *type_ == type;
}
OPKIT_INLINE void Blob::WrongType(const char* wanted) const {
  if (!type_) Throw(ErrorCode::kUninitialized, "blob '", name_, "' is read before it is written");
  Throw(ErrorCode::kTypeMismatch, "blob '", name_, "' holds type ", type_->name(),
        ", but is read as ", wanted, " (names as the compiler mangles them)");
}

OPKIT_INLINE Workspace::~Workspace() {
  for (size_t i = 0; i < blobs_.size(); ++i)
    if (!is_shared_[i]) delete blobs_[i];
}
OPKIT_INLINE Blob* Workspace::CreateBlob(const std::string& name) {
  const size_t number = detail::Index(names_.Add(name));
  if (number == blobs_.size()) blobs_.push_back(nullptr), is_shared_.push_back(0);
  Blob*& blob = blobs_[number];
  if (!blob) blob = new Blob(name);
  return blob;
}
OPKIT_INLINE void Workspace::ShareBlob(const std::string& name, Blob* blob) {
  if (HasBlob(name))
    Throw(ErrorCode::kAlreadyExists, "the workspace has a blob '", name, "' already");
  const size_t number = detail::Index(names_.Add(name));
  if (number == blobs_.size()) blobs_.push_back(nullptr), is_shared_.push_back(0);
  blobs_[number] = blob;
  is_shared_[number] = 1;
}
OPKIT_INLINE bool Workspace::RemoveBlob(std::string_view name) {
  if (!FindBlob(name)) return false;
  const size_t number = detail::Index(names_.Find(name));
  Blob* const blob = std::exchange(blobs_[number], nullptr);
  if (!std::exchange(is_shared_[number], 0)) delete blob;
  return true;
}
OPKIT_INLINE std::vector<std::string> Workspace::Blobs() const {
  std::vector<std::string> names;
  for (const Blob* blob : blobs_)
    if (blob) names.push_back(blob->name());
  detail::StableSort(names, [](const std::string& a, const std::string& b) { return a < b; });
  return names;
}
OPKIT_INLINE Blob* Workspace::GetBlob(const std::string& name) const {
  if (Blob* blob = FindBlob(name)) return blob;
  Throw(ErrorCode::kNotFound, "no blob '", name, "' in the workspace", SuggestName(name, Blobs()));
}

OPKIT_INLINE Tensor* Workspace::GetTensor(const std::string& name) const {
  return const_cast<Tensor*>(&GetBlob(name)->Get<Tensor>());
}
OPKIT_INLINE bool Workspace::HasTensor(const std::string& name) const {
  const Blob* blob = FindBlob(name);
  return blob && blob->IsType<Tensor>();
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_WORKSPACE_IPP_
