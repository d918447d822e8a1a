#include <opkit/opkit.hpp>

#include <cstdio>

int main() {
  opkit::Workspace ws;
  opkit::CreateOperator(opkit::OperatorDef("Answer").Output("Y"), &ws)->Run();
  const float answer = *ws.GetTensor("Y")->data<float>();
  std::printf("opkit %s answers %g\n", OPKIT_VERSION_STRING, static_cast<double>(answer));
  return answer == 42 ? 0 : 1;
}
