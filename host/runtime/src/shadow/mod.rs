use std::sync::Arc; use serde::{Serialize,Deserialize}; use trueup_journal::Entry;
pub struct Observed{pub key:String,pub state:Option<String>,pub entries:Vec<Entry>}
pub struct Candidate{pub engine:trueup_engine::Engine,pub program:Arc<crate::guests::Program>,pub reference:String,pub settings:serde_json::Value,pub limits:trueup_capabilities::meter::Limits,pub folder:std::path::PathBuf,pub guest:String,pub metrics:Arc<trueup_capabilities::metrics::Registry>}
pub struct Shadow{}
#[derive(Debug,Clone,Default,PartialEq,Serialize,Deserialize)] pub struct Status{pub reference:String,pub compared:u64,pub same:u64}
impl Shadow{pub fn start(_c:Candidate)->Result<Self,String>{Ok(Self{})} pub fn wants_state(&self,_:&str)->bool{false} pub fn observe(&self,_:Observed){} pub fn status(&self)->Status{Status::default()} pub fn same_in_a_row(&self)->tokio::sync::watch::Receiver<u64>{tokio::sync::watch::channel(0).1} pub fn end(&self){} pub fn program(&self)->&Arc<crate::guests::Program>{todo!()}}
