//go:build xds

package controlplane

import (
	"net"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// ServerPrefix begins the names of servers' Listeners. Their addresses follow.
const ServerPrefix = "grpc/server?xds.resource.listening_address="

// Target returns the Listener of clients of "xds:///NAME".
func Target(name string, routes ...*routev3.Route) *listenerv3.Listener {
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: pack(manager(routes, nil))}}
}

// ToCluster returns a route of calls of a path prefix to a cluster.
func ToCluster(prefix, cluster string) *routev3.Route {
	return &routev3.Route{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: prefix}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
	}
}

// WithHeader limits a route to calls with a header.
func WithHeader(r *routev3.Route, name, value string) *routev3.Route {
	r.Match.Headers = append(r.Match.Headers, &routev3.HeaderMatcher{Name: name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Exact{Exact: value}}}})
	return r
}

// Cluster returns a cluster. Its clients use TLS with a provider's CA and certificate and accept a server's name, unless
// provider is empty.
func Cluster(name, provider, serverName string) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
	}
	if provider == "" {
		return c
	}
	common := commonTLS(provider)
	names := []*matcherv3.StringMatcher{{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: serverName}}}
	//lint:ignore SA1019 gRPC reads only this one
	common.GetCombinedValidationContext().DefaultValidationContext.MatchSubjectAltNames = names
	c.TransportSocket = socket(&tlsv3.UpstreamTlsContext{CommonTlsContext: common})
	return c
}

// Endpoint is a server of a cluster.
type Endpoint struct {
	Address  string
	Zone     string
	Priority uint32
	Health   corev3.HealthStatus
}

// Endpoints returns the servers of a cluster.
func Endpoints(cluster string, endpoints ...Endpoint) *endpointv3.ClusterLoadAssignment {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	for _, e := range endpoints {
		a.Endpoints = append(a.Endpoints, &endpointv3.LocalityLbEndpoints{
			Locality: &corev3.Locality{Zone: e.Zone}, Priority: e.Priority, LoadBalancingWeight: wrapperspb.UInt32(1),
			LbEndpoints: []*endpointv3.LbEndpoint{{
				HealthStatus:   e.Health,
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: at(e.Address)}},
			}},
		})
	}
	return a
}

// Listener returns the Listener of a server at an address. Filters come before the router. Its TLS requires certificates
// of clients and has a provider's files, unless provider is empty.
func Listener(address, provider string, filters ...*httpv3.HttpFilter) *listenerv3.Listener {
	route := &routev3.Route{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}},
	}
	chain := &listenerv3.FilterChain{Name: "all", Filters: []*listenerv3.Filter{{Name: "http",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(manager([]*routev3.Route{route}, filters))}}}}
	if provider != "" {
		chain.TransportSocket = socket(&tlsv3.DownstreamTlsContext{CommonTlsContext: commonTLS(provider),
			RequireClientCertificate: wrapperspb.Bool(true)})
	}
	return &listenerv3.Listener{Name: ServerPrefix + address, Address: at(address),
		FilterChains: []*listenerv3.FilterChain{chain}}
}

// Filter returns an HTTP filter.
func Filter(name string, config proto.Message) *httpv3.HttpFilter {
	return &httpv3.HttpFilter{Name: name, ConfigType: &httpv3.HttpFilter_TypedConfig{TypedConfig: pack(config)}}
}

func manager(routes []*routev3.Route, filters []*httpv3.HttpFilter) *httpv3.HttpConnectionManager {
	return &httpv3.HttpConnectionManager{
		RouteSpecifier: &httpv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: routes}}}},
		HttpFilters: append(filters, Filter("router", &routerv3.Router{})),
	}
}

func commonTLS(provider string) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{
		TlsCertificateProviderInstance: &tlsv3.CertificateProviderPluginInstance{InstanceName: provider},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext: &tlsv3.CertificateValidationContext{
					CaCertificateProviderInstance: &tlsv3.CertificateProviderPluginInstance{InstanceName: provider}}}},
	}
}

func socket(config proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(config)}}
}

func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

func at(address string) *corev3.Address {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		panic(err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		panic(err)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}}}
}

func pack(m proto.Message) *anypb.Any {
	out, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return out
}
