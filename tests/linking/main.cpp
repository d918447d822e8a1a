// Runs the operator of the library; with an argument, expects that the linker dropped it.
#include <cstdio>
#include <string>

#include "opkit/op/registration.hpp"

#ifdef EXPLICIT
OPKIT_USE_REGISTRATIONS(archived_operators);
#endif

int main(int argc, char**) {
  opkit::Workspace ws;
  opkit::Tensor* x = ws.CreateTensor("X");
  x->Resize({2});
  x->mutable_data<float>()[0] = 1;
  x->mutable_data<float>()[1] = 2;
  try {
    auto op = opkit::CreateOperator(opkit::OperatorDef("Twice").Input("X").Output("Y"), &ws);
    op->Run();
  } catch (const opkit::Error& error) {
    std::printf("%s\n", error.what());
    // The sentence names both ways to keep the registrations of an archive.
    const bool says = error.message().find("opkit_link_operators") != std::string::npos &&
                      error.message().find("OPKIT_USE_REGISTRATIONS") != std::string::npos;
    return argc > 1 && error.code() == opkit::ErrorCode::kNotFound && says ? 0 : 1;
  }
  const opkit::Tensor& y = *ws.GetTensor("Y");
  return argc == 1 && y.data<float>()[0] == 2 && y.data<float>()[1] == 4 ? 0 : 1;
}
