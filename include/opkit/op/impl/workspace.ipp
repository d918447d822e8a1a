// The definitions of Workspace, and Blob's errors.
#ifndef OPKIT_OP_IMPL_WORKSPACE_IPP_
#define OPKIT_OP_IMPL_WORKSPACE_IPP_

#include "opkit/base/suggest.hpp"
#include "opkit/op/workspace.hpp"

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE bool Blob::HasName(const std::type_info& type) const {
  return type_ && *type_ == type;
}
OPKIT_INLINE void Blob::WrongType(const char* wanted) const {
  if (!type_) Throw(ErrorCode::kUninitialized, "blob '", name_, "' is read before it is written");
  Throw(ErrorCode::kTypeMismatch, "blob '", name_, "' holds type ", type_->name(),
        ", but is read as ", wanted, " (names as the compiler mangles them)");
}

OPKIT_INLINE Workspace::Workspace() = default;
OPKIT_INLINE Workspace::~Workspace() = default;
OPKIT_INLINE Blob* Workspace::CreateBlob(const std::string& name) {
  return &blobs_.FindOrAdd(name, name);
}
OPKIT_INLINE Blob* Workspace::FindBlob(std::string_view name) const { return blobs_.Find(name); }
OPKIT_INLINE Blob* Workspace::GetBlob(const std::string& name) const {
  if (Blob* blob = FindBlob(name)) return blob;
  Throw(ErrorCode::kNotFound, "no blob '", name, "' in the workspace", SuggestName(name, Blobs()));
}
OPKIT_INLINE bool Workspace::RemoveBlob(std::string_view name) { return blobs_.Erase(name); }
OPKIT_INLINE std::vector<std::string> Workspace::Blobs() const { return blobs_.Names(); }

OPKIT_INLINE Tensor* Workspace::CreateTensor(const std::string& name) {
  return CreateBlob(name)->GetMutable<Tensor>();
}
OPKIT_INLINE Tensor* Workspace::GetTensor(const std::string& name) const {
  return const_cast<Tensor*>(&GetBlob(name)->Get<Tensor>());
}
OPKIT_INLINE bool Workspace::HasTensor(const std::string& name) const {
  const Blob* blob = FindBlob(name);
  return blob && blob->IsType<Tensor>();
}

}  // namespace opkit

#endif  // OPKIT_OP_IMPL_WORKSPACE_IPP_
