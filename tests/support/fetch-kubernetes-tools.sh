#!/bin/sh
# Build a Kubernetes API server, prometheus-operator, Helm and promtool, and fetch etcd (Debian), into a folder, without
# installing them. The first time takes 10 to 20 minutes. Usage: fetch-kubernetes-tools.sh DIR. Needs Go 1.26, apt for etcd.
set -eu
kubernetes=1.36.1
operator=0.85.0
mkdir -p "$1"
dir=$(cd "$1" && pwd)
export GOFLAGS="-buildvcs=false -mod=mod" CGO_ENABLED=0
command -v go >/dev/null 2>&1 || PATH=$PATH:/usr/local/go/bin

# Neither can be had with `go install`: their modules replace others by folders that a module does not contain.
build() { # build NAME PACKAGE MODULE VERSION REPLACED FLAGS [TAGS]
    name=$1 package=$2 module=$3 version=$4 replaced=$5 flags=$6 tags=${7:-}
    mkdir -p "$dir/go/$name"
    cd "$dir/go/$name"
    rm -f go.mod go.sum
    go mod init "example.com/$name"
    go mod edit -require "$module@v$version"
    for one in $replaced; do go mod edit -replace "${one%@*}=$one"; done
    nice -n 19 go build -p 2 -tags "$tags" -ldflags "-s -w $flags" -o "$dir/$name" "$package"
}

if [ ! -x "$dir/kube-apiserver" ]; then
    listed=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's|.*"GoMod": "\(.*\)",*|\1|p')
    staged=$(sed -n "s|^.*\(k8s.io/[a-z-]*\) v0.0.0\$|\1@v0.${kubernetes#1.}|p" "$listed" | sort -u)
    stamp=k8s.io/component-base/version
    build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes "$kubernetes" "$staged" \
        "-X $stamp.gitVersion=v$kubernetes -X $stamp.gitMajor=1 -X $stamp.gitMinor=36"
fi
module=github.com/prometheus-operator/prometheus-operator
parts="$module/pkg/apis/monitoring@v$operator $module/pkg/client@v$operator"
[ -x "$dir/operator" ] || build operator "$module/cmd/operator" "$module" "$operator" "$parts" ""
[ -d "$dir/crds" ] || {
    cd "$dir"
    found=$(go mod download -json "$module@v$operator" | sed -n 's|.*"Dir": "\(.*\)",*|\1|p')
    keda=$(go mod download -json github.com/kedacore/keda/v2@v2.21.0 | sed -n 's|.*"Dir": "\(.*\)",*|\1|p')
    mkdir crds
    cp "$found"/example/prometheus-operator-crd/*.yaml "$keda"/config/crd/bases/*.yaml crds/
    chmod -R u+w crds
}
[ -x "$dir/etcd" ] || {
    cd "$dir"
    apt-get -qq -o APT::Sandbox::User=root download etcd-server
    dpkg -x etcd-server_*.deb deb
    cp deb/usr/bin/etcd etcd
    rm -rf deb etcd-server_*.deb
}
[ -x "$dir/helm" ] || GOBIN=$dir GOFLAGS=-buildvcs=false nice -n 19 go install helm.sh/helm/v3/cmd/helm@v3.17.3
# Debian's promtool does not know how Prometheus discovers pods.
module=github.com/prometheus/prometheus
[ -x "$dir/promtool" ] || build promtool "$module/cmd/promtool" "$module" 0.316.0 "" "" remove_all_sd,enable_kubernetes_sd
